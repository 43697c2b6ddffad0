-- The traces that are incomplete, and why: their sums are too small.
SELECT date, service, version, host, trace, lost_events, losses
FROM traces
WHERE losses IS NOT NULL OR is_part = 1
ORDER BY lost_events DESC, trace
