#!/bin/sh
# Records a service of three processes, each by itself, as if on machines of their own: two versions on two hosts. The
# tables go below the directory $1. The second version looks up more slowly.
set -e
tables=${1:-tables}
directory=$(dirname "$0")
mkdir -p 1.0 1.1
cc -O2 -o 1.0/request "$directory/../request.c"
cc -O2 -DLOOK_UP=20000 -o 1.1/request "$directory/../request.c"
first=1

record() {
	nopal record --args -F 'ask@request' -F 'look_up@request' -F 'serve@request' -F 'note@request' "$@"
}

for version in 1.0 1.1; do
	for host in n1 n2; do
		name=$version-$host
		sleep 1 | record -o ask-$name.data -- $version/request ask 40 $first |
			record -o serve-$name.data -- $version/request serve |
			record -o note-$name.data -- $version/request note
		for service in ask serve note; do
			nopal export --as parquet --label service=$service --label version=$version --label host=$host \
				--request $service.arg1 -o "$tables" $service-$name.data
		done
		first=$((first + 40))
	done
done
