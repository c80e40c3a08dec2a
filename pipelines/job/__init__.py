"""The frame of every job: a job declares what it does, and this package does the rest.

A job is one declaration and one function: ``declare``; tests/pipelines/example_job.py is a complete
one.

module       owns
declare      ``@job``: a job as one declaration and one function
context      ``Context``, an argument of every job: workers, ranks, its plan
capacity     the memory of workers, on the host or a GPU; what does not fit
parts        the partition that ranks read, made if it is missing
following    the next commands for a graph
tasks        ``run_tasks``: independent tasks
ranks        ``run_ranks``: ranks of a gang, restarted if one is lost; their number
workers      ``Workers``, which gives a job all of these
training     the common content of every training run's run.json; ``penstock.run_output`` is its
folder
training_bar progress of ranks that train
plan         ``Plan``, which ``--plan`` shows

``penstock.formats.Format`` writes manifests, with files listed by ``penstock.files.file_table``;
``Graph.digest`` is the identity of a graph, and ``penstock.options.given_options`` gives a
manifest's options.
"""
