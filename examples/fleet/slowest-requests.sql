-- The requests that took longest, from the first call to the last end of a call, on any hosts. A call whose end is not
-- known counts with the time in which it is known to have run.
SELECT request, MIN(start_ns) AS start_ns, MAX(start_ns + COALESCE(duration_ns, 0)) - MIN(start_ns) AS took_ns,
    COUNT(DISTINCT service) AS services, COUNT(DISTINCT host) AS hosts, COUNT(*) AS calls
FROM calls
WHERE request IS NOT NULL
GROUP BY request
ORDER BY took_ns DESC, request
LIMIT 10
