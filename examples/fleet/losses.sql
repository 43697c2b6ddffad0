-- The incomplete traces, whose sums are too small, and the reasons.
SELECT date, service, version, host, trace, lost_events, losses
FROM traces
WHERE losses IS NOT NULL OR is_part = 1
ORDER BY lost_events DESC, trace
