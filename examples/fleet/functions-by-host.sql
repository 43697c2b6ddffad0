-- The times of each function on each host, the most self time first.
SELECT host, module, function, SUM(calls) AS calls, SUM(total_ns) AS total_ns, SUM(self_ns) AS self_ns
FROM functions
GROUP BY host, module, function
ORDER BY self_ns DESC, host, module, function
LIMIT 50
