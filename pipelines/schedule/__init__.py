"""``penstock schedule``: flows by cron expression.

module   owns
cron     cron expressions, in cron's own meaning
entry    what is to be run and when, by options and by the flow's file
store    the SQLite file: schedules of APScheduler, and the runs of each
serve    running what is due
emit     entries for systemd, cron, Kubernetes and Airflow
"""
