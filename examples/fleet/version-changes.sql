-- The changes between pairs of versions: the self time per call of each function, and its share of the service's time. The
-- order is by the change for all calls of the new version.
WITH sums AS (
    SELECT service, version, module, function, SUM(calls) AS calls, SUM(self_ns) AS self_ns
    FROM functions
    GROUP BY service, version, module, function
), shares AS (
    SELECT service, version, module, function, calls,
        CAST(self_ns AS DOUBLE) / calls AS self_per_call_ns,
        100.0E0 * self_ns / SUM(self_ns) OVER (PARTITION BY service, version) AS share
    FROM sums
    WHERE calls > 0
)
SELECT service, module, function, old.version AS old_version, new.version AS new_version,
    old.calls AS old_calls, new.calls AS new_calls,
    ROUND(old.self_per_call_ns) AS old_ns, ROUND(new.self_per_call_ns) AS new_ns,
    ROUND(old.share, 1) AS old_percent, ROUND(new.share, 1) AS new_percent
FROM shares AS old JOIN shares AS new USING (service, module, function)
WHERE old.version < new.version
ORDER BY ABS(new.self_per_call_ns - old.self_per_call_ns) * new.calls DESC, service, module, function
LIMIT 20
