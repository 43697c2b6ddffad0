# wrk for twenty seconds: every answer has the right status.
port=$((30000 + $$ % 10000))
"$SOAK/nginx-configuration" $port > configuration
$RUN nginx -p "$PWD" -c "$PWD/configuration" 2> said &
for _ in $(seq 300); do
	[[ -s pid ]] && break
	sleep 0.1
done
for path in / /large /none; do
	wrk -t 2 -c 64 -d 7s --timeout 60s "http://127.0.0.1:$port$path" > wrk 2>&1
	grep -cE 'requests in' wrk
	grep -E 'Socket errors|unable' wrk
	grep -oE 'Non-2xx' wrk
done
kill -QUIT "$(cat pid)"
wait
# The lengths of answers are left out: wrk hangs up in the midst of some.
cut -d ' ' -f 9 l/a | sort -u
