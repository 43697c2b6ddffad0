\ Gforth: threaded code, the return stack in its own memory, exceptions, signals that become exceptions.
: awaited s" HOLD" getenv dup if begin 2dup file-status nip 0= until then 2drop ; awaited
: fib dup 2 < if drop 1 else dup 1- recurse swap 2 - recurse + then ;
27 fib . cr
: deep ?dup if 1- recurse 1+ else 42 throw then ;
variable caught
: tries 20000 0 do i 50 mod ['] deep catch caught +! drop loop ; tries caught ? cr
: faults 200 0 do 0 ['] @ catch nip if 1 caught +! then loop ; faults caught ? cr
: fill-heap 1000 0 do 10000 allocate throw dup 10000 i fill free throw loop ; fill-heap
: divides 10 0 ['] / catch . 2drop ; divides cr
bye
