# Basic operations on a repository.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=$PWD
export GIT_AUTHOR_DATE=@1000000000 GIT_COMMITTER_DATE=@1000000000
g() { $RUN git -c user.name=n -c user.email=e -c init.defaultBranch=main "$@"; }
g init -q r
cd r
for n in $(seq 20); do seq "$n" 200 > "f$n"; done
g add .
g commit -qm one
g checkout -qb side
seq 5 300 > f3
g commit -qam two
g checkout -q main
echo x >> f7
g commit -qam three
g merge -q --no-edit side
g log --format=%H%s
g diff --stat HEAD~1
g blame -s f3 | cksum
g gc -q
g fsck --no-progress
g clone -q . ../copy
g -C ../copy rev-parse HEAD
