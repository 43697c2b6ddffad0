-- Median and 99th percentile of each function in each version. Buckets are added up over all hosts before a percentile is
-- taken: an average of percentiles means nothing.
WITH buckets AS (
    SELECT service, version, module, function, duration_ns, SUM(calls) AS calls
    FROM durations
    GROUP BY service, version, module, function, duration_ns
), ranked AS (
    SELECT service, version, module, function, duration_ns,
        SUM(calls) OVER (PARTITION BY service, version, module, function ORDER BY duration_ns) AS up_to,
        SUM(calls) OVER (PARTITION BY service, version, module, function) AS timed
    FROM buckets
)
SELECT service, version, module, function, MAX(timed) AS timed,
    MIN(CASE WHEN up_to * 100 >= timed * 50 THEN duration_ns END) AS p50_ns,
    MIN(CASE WHEN up_to * 100 >= timed * 99 THEN duration_ns END) AS p99_ns
FROM ranked
GROUP BY service, version, module, function
ORDER BY p99_ns DESC, service, version, module, function
LIMIT 50
