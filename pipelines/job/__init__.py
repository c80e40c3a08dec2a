"""The frame of every job: a job declares what it does, and the rest is done here, once.

A job is one declaration and one function: ``declare``; tests/pipelines/example_job.py is a complete
one.

module       owns
declare      ``@job``: a job as one declaration and one function
context      ``Context``, which a job is handed: workers, ranks, its plan
capacity     the memory of workers, on the host or a GPU; what does not fit
parts        the partition that ranks read, made if it is missing
following    what a graph can be given to next
tasks        ``run_tasks``: independent tasks
ranks        ``run_ranks``: ranks of a gang, restarted if one was lost; the number
workers      ``Workers``, which gives a job all of these, and ``open_ranks``, which connects to them
training     what run.json holds of every run of training; ``penstock.run_output`` is its folder
training_bar progress of ranks that train
plan         ``Plan``, which ``--plan`` shows

Manifests are written by ``penstock.formats.Format``, with files listed by
``penstock.files.file_table``; ``Graph.digest`` is the identity of a graph, and
``penstock.options.given_options`` is what a manifest holds of options.
"""
