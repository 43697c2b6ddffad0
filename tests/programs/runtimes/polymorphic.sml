(* Poly/ML: code in the heap, moved by a collector with threads; exceptions that unwind stacks of its own. *)
fun hold NONE = ()
  | hold (SOME file) = if OS.FileSys.access (file, []) then () else hold (SOME file);
val () = hold (OS.Process.getEnv "HOLD");
exception Told of int;
datatype tree = Leaf | Node of tree * int * tree;
fun grow 0 = Leaf | grow n = Node (grow (n - 1), n, grow (n - 1));
fun sum Leaf = 0 | sum (Node (l, v, r)) = sum l + v + sum r;
fun deep (0, n) = raise Told n | deep (d, n) = 1 + deep (d - 1, n);
fun repeat (0, _) = () | repeat (n, f) = (f n; repeat (n - 1, f));
fun say n = print (Int.toString n ^ "\n");
val () = repeat (10, fn _ => (say (sum (grow 15)); PolyML.fullGC ()));
val () = say (List.foldl op+ 0 (List.tabulate (20000, fn n => deep (n mod 50, n) handle Told m => m)));
local open Thread in
val lock = Mutex.mutex ();
val total = ref 0;
val done = ref 0;
val ended = ConditionVar.conditionVar ();
fun work n () =
  let val s = List.foldl (fn (a, b) => (a * n + b) mod 1000003) 0 (List.tabulate (50000, fn i => i))
  in Mutex.lock lock; total := !total + s; done := !done + 1; ConditionVar.signal ended; Mutex.unlock lock end;
val () = repeat (6, fn n => ignore (Thread.fork (work n, [])));
val () = Mutex.lock lock;
fun wait () = if !done = 6 then () else (ConditionVar.wait (ended, lock); wait ());
val () = wait ();
val () = Mutex.unlock lock;
end;
val () = say (!total);
val () = say ((valOf (Int.fromString "x")) handle Option => ~1);
val () = say (10 div (!done - 6) handle Div => ~2);
val () = OS.Process.exit OS.Process.success;
