"""`ScheduleStore`: the fence around a schedule and the jobs that it fires.

Every test here fails on a planted broken store.
"""
