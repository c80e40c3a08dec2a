"""``penstock schedule``: flows by cron expression.

module   owns
cron     cron expressions, in cron's own meaning
store    the SQLite file: schedules of APScheduler, and the runs of each
serve    running what is due
emit     entries for systemd, cron, Kubernetes and Airflow
"""
