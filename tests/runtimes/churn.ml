(* Exceptions through many frames, closures, garbage of all generations, polymorphic compare: the same output in every run. *)
exception Found of int
type tree = Leaf | Node of tree * int * tree
let rec build n = if n = 0 then Leaf else Node (build (n - 1), n, build (n - 1))
let rec sum = function Leaf -> 0 | Node (l, v, r) -> sum l + v + sum r
let rec search depth n = if n = depth then raise (Found n) else 1 + search depth (n + 1)
let rec nested n = if n = 0 then raise Not_found else try nested (n - 1) with Not_found when n mod 2 = 0 -> raise (Failure (string_of_int n))
                                                               | Failure s when n mod 3 = 0 -> raise Not_found | Failure s -> raise (Failure (s ^ "." ^ string_of_int n))
let () =
  let total = ref 0 in
  for i = 1 to 200 do total := !total + sum (build 12); if i mod 50 = 0 then Gc.compact () done;
  Printf.printf "sum %d\n" !total;
  for depth = 1 to 1000 do (try ignore (search depth 0) with Found n -> total := !total + n) done;
  Printf.printf "found %d\n" !total;
  (try nested 30 with Failure s -> print_endline s | Not_found -> print_endline "not found");
  let table = Hashtbl.create 16 in
  for i = 0 to 50000 do let key = Printf.sprintf "k%d" (i * 7919 mod 997) in
    Hashtbl.replace table key (1 + try Hashtbl.find table key with Not_found -> 0) done;
  let keys = List.sort compare (Hashtbl.fold (fun k v l -> (k, v) :: l) table []) in
  Printf.printf "%d %s\n" (List.length keys) (fst (List.hd keys));
  let weak = Weak.create 10 in
  Weak.set weak 0 (Some (Bytes.create 100)); Gc.full_major ();
  Printf.printf "weak %b\n" (Weak.get weak 0 = None);
  let signalled = ref 0 in
  Sys.set_signal Sys.sigalrm (Sys.Signal_handle (fun _ -> incr signalled));
  List.iter (fun f -> print_endline (f 3)) [ string_of_int; (fun n -> String.make n 'x'); Printf.sprintf "%05d" ];
  exit 5
