-- Waits that begin while the clock is set back count from the last instant that counted: functions alone
-- have changed.
COMMENT ON TABLE marks IS 'charged: when something was last taken from a gate, or shut one';
