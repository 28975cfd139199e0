-- Queues that rest do not wait for a clock that was set back: functions alone have changed.
COMMENT ON TABLE marks IS
    'charged: when something was last taken from a gate, or shut one, or a queue began to rest';
