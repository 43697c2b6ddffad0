# A server with a client beside it, from a directory of data that initdb has made. The server is this process: it
# accepts connections when a tracer attaches, and makes a process for each. The arguments: the template, and the user.
. "$(dirname "$0")/hold.sh"
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
cp -r "$1" "$here/data"
chown -R "$2" "$here"
sql() { psql -X -q -A -t -h "$here" -U "$2" -d postgres -c "$1"; }
(
	exec 2>"$here/client.log"
	until pg_isready -q -h "$here"; do kill -0 $$ && sleep 0.05 || exit; done
	held
	pgbench -i -q -h "$here" -U "$2" -s 1 --no-vacuum postgres >/dev/null
	# The results are the same in every run: each client has its own rows, and the sums do not depend on the order.
	cat >"$here/work.sql" <<-'SQL'
		\set row 1 + (:client_id * 1000 + 7 * :step) % 10000
		UPDATE pgbench_accounts SET abalance = abalance + :row WHERE aid = :row;
		UPDATE pgbench_tellers SET tbalance = tbalance + :row WHERE tid = 1 + :row % 10;
		INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, :row, :row, 'epoch');
		SELECT count(*), sum(length(md5(aid::text))) FROM pgbench_accounts WHERE aid BETWEEN :row AND :row + 500;
	SQL
	for step in 1 2 3; do
		pgbench -n -C -h "$here" -U "$2" -c 4 -j 2 -t 15 -D step=$step -f "$here/work.sql" postgres >"$here/bench.log" ||
			echo "pgbench failed in step $step"
	done
	sql 'SELECT count(*), sum(abalance), sum(abs(hashint8(abalance + aid))::bigint) FROM pgbench_accounts' "$2"
	sql 'SELECT sum(tbalance), sum(tbalance * tid) FROM pgbench_tellers' "$2"
	sql 'SELECT count(*), sum(delta), sum(delta * aid) FROM pgbench_history' "$2"
	sql 'SELECT sum(v), md5(string_agg(v::text, chr(44) ORDER BY v)) FROM (SELECT generate_series(1, 30000) * 7919 % 30011 AS v) AS t' "$2"
	kill -INT $$
	while kill -0 $$ && [ -e "$here/data/postmaster.pid" ]; do sleep 0.05; done
	cd / && rm -rf "$here"
) </dev/null &
exec setpriv --reuid "$2" --regid "$2" --clear-groups "$bin/postgres" -D "$here/data" -k "$here" -c listen_addresses= \
	-c fsync=off -c autovacuum=off </dev/null 2>"$here/server.log"
