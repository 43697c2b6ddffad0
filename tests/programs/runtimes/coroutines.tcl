# Tcl: bytecode without recursion on C's stack, coroutines, errors, traces, a compiler at run time.
while {[info exists env(HOLD)] && ![file exists $env(HOLD)]} {}
proc deep n {if {$n == 0} {error told}; expr {1 + [deep [expr {$n - 1}]]}}
set caught 0
for {set n 0} {$n < 5000} {incr n} {if {[catch {deep [expr {$n % 50}]} why]} {incr caught [string length $why]}}
puts $caught
proc numbers n {yield; for {set i 0} {$i < $n} {incr i} {yield $i}; return done}
set total 0
for {set n 0} {$n < 50} {incr n} {coroutine c$n numbers 200}
for {set i 0} {$i < 200} {incr i} {for {set n 0} {$n < 50} {incr n} {incr total [c$n]}}
puts $total
set list {}
for {set i 0} {$i < 20000} {incr i} {lappend list [expr {$i * 7919 % 10007}]}
puts [lindex [lsort -integer -command {apply {{a b} {expr {$a - $b}}}} [lrange $list 0 3000]] end]
puts [string length [regsub -all {\d+} [string repeat ab12 3000] x]]
set after 0
for {set i 0} {$i < 200} {incr i} {after 0 {incr after}}
while {$after < 200} {update}
puts $after
exit 12
