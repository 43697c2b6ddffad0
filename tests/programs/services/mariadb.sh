# A server with clients beside it. The arguments: a directory of data made before, and the user.
. "$(dirname "$0")/hold.sh"
cp -r "$1" "$here/data"
chown -R "$2" "$here"
sql() { mariadb --no-defaults -S "$here/socket" -u root -N -B test; }
(
	exec 2>"$here/client.log"
	until mariadb-admin --no-defaults -S "$here/socket" -u root ping >/dev/null; do kill -0 $$ && sleep 0.05 || exit; done
	held
	sql <<-'SQL'
		CREATE TABLE rows_of (client INT, n INT, v BIGINT, t VARCHAR(64), PRIMARY KEY (client, n)) ENGINE=InnoDB;
		CREATE TABLE other (n INT PRIMARY KEY, t TEXT) ENGINE=Aria;
	SQL
	for client in 1 2 3; do
		{
			for n in 1 2 3 4 5 6 7 8 9 10; do
				echo "INSERT INTO rows_of SELECT $client, $n * 1000 + seq, seq * 7919 % 10007, MD5(seq) FROM seq_1_to_200;"
				echo "UPDATE rows_of SET v = v + $n WHERE client = $client AND n % $n = 0;"
				echo "START TRANSACTION; DELETE FROM rows_of WHERE client = $client; ROLLBACK;"
			done
			echo "INSERT INTO other SELECT $client * 1000 + seq, REPEAT(SHA1(seq), 3) FROM seq_1_to_300;"
		} | sql &
		clients="$clients $!"
	done
	wait $clients
	sql <<-'SQL'
		SELECT client, COUNT(*), SUM(v), SUM(CRC32(t)) FROM rows_of GROUP BY client ORDER BY client;
		SELECT COUNT(*), SUM(LENGTH(t)), SUM(CRC32(t)) FROM other;
		SELECT SUM(a.v * b.v) FROM rows_of a JOIN rows_of b ON a.n = b.n AND a.client < b.client;
	SQL
	kill -TERM $$
	while kill -0 $$ && [ -e "$here/pid" ]; do sleep 0.05; done
	cd / && rm -rf "$here"
) </dev/null &
exec mariadbd --no-defaults --user="$2" --datadir="$here/data" --socket="$here/socket" --pid-file="$here/pid" \
	--skip-networking --skip-grant-tables --innodb-buffer-pool-size=16M \
	</dev/null 2>"$here/server.log"
