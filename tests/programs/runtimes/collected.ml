(* Work for a collector that finds the frames of a stack by their return addresses: live values in frames of all depths,
   exceptions through them, callbacks from C, finalisers, and threads that force switches. *)

let () =
  match Sys.getenv_opt "HOLD" with
  | Some file -> while not (Sys.file_exists file) do ignore (Sys.opaque_identity (ref 0)) done
  | None -> ()

exception Found of int

type tree = Leaf | Node of tree * int * tree

let rec grow depth = if depth = 0 then Leaf else Node (grow (depth - 1), depth, grow (depth - 1))
let rec sum = function Leaf -> 0 | Node (l, v, r) -> sum l + v + sum r

let rec find limit list n =
  match list with
  | [] -> raise Not_found
  | head :: _ when head = limit -> raise (Found n)
  | _ :: tail -> 1 + find limit tail (n + 1)

let thrown n =
  let list = List.init n (fun i -> i) in
  try find (n - 1) list 0 with Found at -> at | Not_found -> -1

(* Sorting by C's callback into OCaml: compare calls caml_callback for abstract values. *)
let sorted n =
  let a = Array.init n (fun i -> string_of_int ((i * 7919) mod n)) in
  Array.sort compare a;
  Hashtbl.hash (Array.to_list a)

let finalised = ref 0

let finalisers n =
  for i = 1 to n do
    let block = Bytes.create (i mod 100 + 1) in
    Gc.finalise (fun _ -> incr finalised) block
  done;
  Gc.full_major ();
  Gc.full_major ();
  !finalised > n / 2

let words n =
  let table = Hashtbl.create 16 in
  for i = 0 to n - 1 do
    let key = Printf.sprintf "%d-%s" (i mod 997) (String.make (i mod 7) 'x') in
    Hashtbl.replace table key (1 + try Hashtbl.find table key with Not_found -> 0)
  done;
  Hashtbl.fold (fun key count total -> (total + (Hashtbl.hash key * count)) mod 1000003) table 0

let rec deep n = if n = 0 then sum (grow 10) else 1 + deep (n - 1)

let () =
  for round = 1 to 10 do
    Printf.printf "%d: %d %d %d\n%!" round (sum (grow 13)) (thrown 2000) (words 3000);
    Gc.compact ()
  done;
  Printf.printf "%d %d\n%!" (sorted 5000) (deep 20000);
  Printf.printf "%b\n%!" (finalisers 1000);
  Printf.printf "%s\n%!" (match failwith "told" with exception Failure why -> why | () -> "not")
