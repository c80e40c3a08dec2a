"""``penstock schedule``: flows by cron expression.

module   owns
cron     cron expressions, in cron's own meaning
entry    what is to be run and when: one JSON file per schedule, and which days are due
serve    running what is due
emit     entries for systemd, cron, Kubernetes and Airflow
"""
