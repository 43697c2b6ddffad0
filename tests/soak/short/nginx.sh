# Every answer to four threads, and the log's length.
port=$((20000 + $$ % 10000))
"$SOAK/nginx-configuration" $port > configuration
$RUN nginx -p "$PWD" -c "$PWD/configuration" 2> said &
python3 - $port <<'END'
import sys, time, hashlib, threading, urllib.request, urllib.error
base = 'http://127.0.0.1:' + sys.argv[1]
for _ in range(300):
    try:
        urllib.request.urlopen(base + '/')
        break
    except OSError:
        time.sleep(0.1)
seen = {}
lock = threading.Lock()
def load():
    for n in range(150):
        path = ['/', '/large', '/none'][n % 3]
        try:
            body, status = urllib.request.urlopen(base + path).read(), 200
        except urllib.error.HTTPError as error:
            body, status = error.read(), error.code
        key = (path, status, hashlib.md5(body).hexdigest())
        with lock:
            seen[key] = seen.get(key, 0) + 1
threads = [threading.Thread(target=load) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sorted(seen.items()))
END
kill -QUIT "$(cat pid)"
wait
wc -l < l/a
