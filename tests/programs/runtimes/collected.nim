## Nim: exceptions by its own jumps, closures, a collector that counts references and looks for cycles, threads.
import os, strutils, algorithm, tables, sequtils
let hold = getEnv("HOLD")
while hold != "" and not fileExists(hold): discard
type Tree = ref object
  left, right: Tree
  value: int
proc grow(n: int): Tree =
  if n > 0: result = Tree(left: grow(n - 1), value: n, right: grow(n - 1))
proc sum(t: Tree): int =
  if t != nil: result = sum(t.left) + t.value + sum(t.right)
proc deep(n: int): int =
  if n == 0: raise newException(ValueError, "told")
  1 + deep(n - 1)
iterator numbers(n: int): int {.closure.} =
  for i in 0 ..< n: yield i * 7919 mod 1009
for i in 1 .. 10: echo sum(grow(14)); GC_fullCollect()
var caught = 0
for n in 0 ..< 5000:
  try: discard deep(n mod 40)
  except ValueError as e: caught += e.msg.len
echo caught
var list: seq[int]
for x in numbers(20000): list.add x
list.sort(proc (a, b: int): int = cmp(a, b))
echo list[0], " ", list[^1]
var counts = initCountTable[string]()
for i in 0 ..< 50000: counts.inc($(i mod 997))
echo counts.len
var totals: array[4, int]
proc work(n: int) {.thread.} =
  for i in 1 .. 5: {.gcsafe.}: totals[n] += sum(grow(12))
var threads: array[4, Thread[int]]
for n in 0 .. 3: createThread(threads[n], work, n)
joinThreads(threads)
echo totals
quit 13
