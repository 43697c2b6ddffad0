//! The programs: scripts of the shell, in a directory of their own, in which `$RUN PROGRAM` runs a program.

/// A script that prints the same and ends with the same status however its programs are run.
pub struct Row {
    pub name: &'static str,
    pub script: &'static str,
}

pub const ROWS: &[Row] = &[
    Row {
        name: "gcc, a large file",
        script: "for n in $(seq 300); do echo \"int f$n(int *a, int b) { for (int i = 0; i < b; i++) a[i] += a[i ^ 1] * $n; \
                 return a[b / 2]; }\"; done > large.c; $RUN gcc -O2 -g -c large.c -o large.o && cksum < large.o",
    },
    Row {
        name: "git, basic operations",
        script: "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=$PWD GIT_AUTHOR_DATE=@1000000000 \
                 GIT_COMMITTER_DATE=@1000000000; g() { $RUN git -c user.name=n -c user.email=e -c init.defaultBranch=main \"$@\"; }; \
                 g init -q r && cd r; for n in $(seq 20); do seq $n 200 > f$n; done; g add . && g commit -qm one; \
                 g checkout -qb side; seq 5 300 > f3; g commit -qam two; g checkout -q main; echo x >> f7; g commit -qam three; \
                 g merge -q --no-edit side; g log --format=%H%s; g diff --stat HEAD~1; g blame -s f3 | cksum; g gc -q; \
                 g fsck --no-progress; g clone -q . ../copy; g -C ../copy rev-parse HEAD",
    },
    Row {
        name: "sqlite3, statements of all kinds",
        script: "cat > s.sql <<'END'\n\
                 pragma journal_mode = wal; create table t (a integer primary key, b text, c real); create index i on t (b, c);\n\
                 with recursive n(x) as (select 1 union all select x + 1 from n where x < 3000) insert into t select x, hex(x * 7919), x / 7.0 from n;\n\
                 create virtual table words using fts5(text); insert into words select b from t; select count(*) from words where words match '3*';\n\
                 create trigger r after delete on t begin insert into words values (old.b); end; delete from t where a % 5 = 0;\n\
                 select count(*), sum(a), max(b), total(c), group_concat(a % 9) from t where b glob '*A*' group by a % 4 order by 2 desc;\n\
                 select a, rank() over (partition by a % 3 order by c desc) from t limit 50; select json_extract('{\"a\":[1,2,{\"b\":3}]}', '$.a[2].b');\n\
                 begin; update t set b = b || 'x' where a < 500; savepoint s; delete from t; rollback to s; commit; vacuum; reindex;\n\
                 select count(*) from t x join t y on x.a = y.a + 1 left join t z on z.b = y.b; explain query plan select * from t where b = 'x';\n\
                 pragma integrity_check; select printf('%.10g', avg(c)) from t; .dump t\nEND\n\
                 $RUN sqlite3 data.db < s.sql | cksum; sqlite3 data.db 'pragma integrity_check; select count(*), sum(a), sum(length(b)) from t'",
    },
    Row {
        name: "openssl, its self-checks and keys",
        script: "head -c 3000000 /dev/zero | tr '\\0' a > in; for d in md5 sha1 sha256 sha512 sha3-256 blake2b512; do $RUN openssl dgst -$d in; done; \
                 for c in aes-128-cbc aes-256-gcm aes-256-ctr chacha20 camellia-256-cbc; do case $c in *gcm) continue;; esac; \
                 $RUN openssl enc -$c -pbkdf2 -pass pass:x -S 0011223344556677 -in in -out out && $RUN openssl enc -d -$c -pbkdf2 -pass pass:x -S 0011223344556677 -in out | cksum; done; \
                 $RUN openssl genpkey -algorithm ed25519 -out key 2>&1 && $RUN openssl pkeyutl -sign -rawin -in s -inkey key -out sig 2>/dev/null; \
                 $RUN openssl genrsa -out rsa 2048 2>/dev/null && $RUN openssl rsa -check -noout -in rsa 2>&1; $RUN openssl prime 1000003; \
                 $RUN openssl speed -seconds 1 -bytes 1024 sha256 aes-128-cbc 2>/dev/null | grep -c '^sha256\\|^AES'",
    },
    Row {
        name: "redis under redis-benchmark",
        script: "$RUN redis-server --port 0 --unixsocket $PWD/s --save '' --appendonly yes --dir $PWD > log 2>&1 & \
                 for i in $(seq 300); do [ -S s ] && break; sleep 0.1; done; \
                 redis-benchmark -s s -q -n 3000 -r 500 -t set,get,incr,lpush,rpush,lpop,sadd,hset,zadd,mset > /dev/null 2>&1; \
                 for n in $(seq 200); do echo \"set key:$n $n\"; echo \"zadd z $n m$n\"; echo \"incrby total $n\"; done | redis-cli -s s > /dev/null; \
                 redis-cli -s s get key:77; redis-cli -s s get total; redis-cli -s s zrange z 10 12 withscores; redis-cli -s s debug digest-value z; \
                 redis-cli -s s bgrewriteaof; sleep 1; redis-cli -s s shutdown nosave; wait; \
                 redis-server --port 0 --unixsocket $PWD/t --save '' --appendonly yes --dir $PWD > log2 2>&1 & \
                 for i in $(seq 300); do [ -S t ] && redis-cli -s t ping 2>&1 | grep -q PONG && break; sleep 0.1; done; \
                 redis-cli -s t get total; redis-cli -s t zcard z; redis-cli -s t shutdown nosave; wait",
    },
    Row {
        name: "nginx under load",
        script: "mkdir -p w l; head -c 300000 /dev/zero | tr '\\0' n > w/large; echo small > w/index.html; port=$((20000 + $$ % 20000)); \
                 cat > n.conf <<END\ndaemon off; worker_processes 2; pid $PWD/pid; error_log $PWD/l/e; events { worker_connections 256; }\n\
                 http { access_log $PWD/l/a; gzip on; client_body_temp_path $PWD/l; proxy_temp_path $PWD/l; fastcgi_temp_path $PWD/l; \
                 uwsgi_temp_path $PWD/l; scgi_temp_path $PWD/l; server { listen 127.0.0.1:$port; root $PWD/w; } }\nEND\n\
                 chmod -R a+rX .; $RUN nginx -p $PWD -c $PWD/n.conf 2> ne & \
                 python3 - $port <<'END'\nimport sys, time, hashlib, threading, urllib.request, urllib.error\n\
                 base = 'http://127.0.0.1:' + sys.argv[1]\n\
                 for _ in range(300):\n    try: urllib.request.urlopen(base + '/'); break\n    except OSError: time.sleep(0.1)\n\
                 seen = {}\nlock = threading.Lock()\n\
                 def load():\n    for n in range(150):\n        path = ['/', '/large', '/none'][n % 3]\n\
                 \x20       try: body, status = urllib.request.urlopen(base + path).read(), 200\n\
                 \x20       except urllib.error.HTTPError as error: body, status = error.read(), error.code\n\
                 \x20       key = (path, status, hashlib.md5(body).hexdigest())\n\
                 \x20       with lock: seen[key] = seen.get(key, 0) + 1\n\
                 threads = [threading.Thread(target=load) for _ in range(4)]\n\
                 [thread.start() for thread in threads]; [thread.join() for thread in threads]\n\
                 print(sorted(seen.items()))\nEND\n\
                 kill -QUIT $(cat pid); wait; wc -l < l/a",
    },
];

/// Modules of CPython's regression tests that need no network and nobody's attention. The first few make the short form.
pub const PYTHON_TESTS: &[&str] = &[
    "json",
    "struct",
    "threading",
    "exceptions",
    "generators",
    "gc",
    "abc",
    "argparse",
    "array",
    "ast",
    "asyncgen",
    "atexit",
    "augassign",
    "base64",
    "bigaddrspace",
    "binascii",
    "binop",
    "bisect",
    "bool",
    "bufio",
    "builtin",
    "bytes",
    "bz2",
    "calendar",
    "call",
    "cmath",
    "cmd",
    "code",
    "codeccallbacks",
    "codecs",
    "collections",
    "colorsys",
    "compare",
    "compile",
    "complex",
    "configparser",
    "contains",
    "contextlib",
    "context",
    "copy",
    "copyreg",
    "coroutines",
    "crypt",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "decorators",
    "defaultdict",
    "deque",
    "descr",
    "dict",
    "dictcomps",
    "dictviews",
    "difflib",
    "dis",
    "dynamic",
    "enum",
    "enumerate",
    "eof",
    "errno",
    "fcntl",
    "filecmp",
    "fileinput",
    "float",
    "fnmatch",
    "format",
    "fractions",
    "frozen",
    "fstring",
    "functools",
    "future",
    "genericpath",
    "genexps",
    "getopt",
    "glob",
    "global",
    "grammar",
    "graphlib",
    "gzip",
    "hash",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "index",
    "inspect",
    "int",
    "io",
    "iter",
    "itertools",
    "keyword",
    "linecache",
    "list",
    "listcomps",
    "long",
    "lzma",
    "marshal",
    "math",
    "memoryio",
    "memoryview",
    "mmap",
    "named_expressions",
    "operator",
    "ordered_dict",
    "os",
    "pathlib",
    "pickle",
    "pprint",
    "property",
    "queue",
    "random",
    "range",
    "re",
    "sched",
    "select",
    "set",
    "shelve",
    "shlex",
    "signal",
    "slice",
    "sort",
    "statistics",
    "string",
    "subprocess",
    "super",
    "syntax",
    "tempfile",
    "textwrap",
    "thread",
    "time",
    "tokenize",
    "traceback",
    "tuple",
    "types",
    "typing",
    "unicode",
    "weakref",
    "with",
    "yield_from",
    "zipfile",
    "zlib",
];
