-- All calls of the slowest request, across services, in order of time.
WITH requests AS (
    SELECT request, MIN(start_ns) AS begin_ns, MAX(start_ns + COALESCE(duration_ns, 0)) - MIN(start_ns) AS took_ns
    FROM calls
    WHERE request IS NOT NULL
    GROUP BY request
), slowest AS (
    SELECT request, begin_ns
    FROM requests
    ORDER BY took_ns DESC, request
    LIMIT 1
)
SELECT request, service, host, pid, function, depth, start_ns - begin_ns AS at_ns, duration_ns, self_ns, state
FROM calls JOIN slowest USING (request)
ORDER BY at_ns, depth, service
