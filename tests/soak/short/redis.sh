# redis-benchmark, and data read back after a restart.
begin() {
	local socket=$1
	shift
	"$@" redis-server --port 0 --unixsocket "$PWD/$socket" --save '' --appendonly yes --dir "$PWD" > "log-$socket" 2>&1 &
	for _ in $(seq 300); do
		redis-cli -s "$socket" ping 2>&1 | grep -q PONG && return
		sleep 0.1
	done
}
begin first $RUN
redis-benchmark -s first -q -n 3000 -r 500 -t set,get,incr,lpush,rpush,lpop,sadd,hset,zadd,mset > benchmark 2>&1
grep -c 'requests per second' benchmark
for n in $(seq 200); do
	echo "set key:$n $n"
	echo "zadd z $n m$n"
	echo "incrby total $n"
done | redis-cli -s first > /dev/null
redis-cli -s first get key:77
redis-cli -s first get total
redis-cli -s first zrange z 10 12 withscores
redis-cli -s first debug digest-value z
redis-cli -s first bgrewriteaof
sleep 1
redis-cli -s first shutdown nosave
wait
begin second
redis-cli -s second get total
redis-cli -s second zcard z
redis-cli -s second shutdown nosave
wait
