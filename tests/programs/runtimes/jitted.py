# PyPy: code made at run time with its own frames, greenlets that copy stacks, generators, a moving collector, threads.
import os, threading, sys
hold = os.environ.get('HOLD')
while hold and not os.path.exists(hold): pass
class Tree:
    def __init__(self, n): self.l, self.v, self.r = (Tree(n - 1), n, Tree(n - 1)) if n else (None, 0, None)
    def sum(self): return self.v + (self.l.sum() + self.r.sum() if self.l else 0)
def deep(n):
    if n == 0: raise ValueError('told')
    return 1 + deep(n - 1)
for _ in range(10): print(Tree(13).sum())
caught = 0
for n in range(20000):
    try: deep(n % 50)
    except ValueError as e: caught += len(str(e))
print(caught)
try:
    from greenlet import greenlet, getcurrent
    def worker(depth, rounds):
        parent = getcurrent().parent
        def down(n): return down(n - 1) + 1 if n else parent.switch(depth)
        total = 0
        for _ in range(rounds): down(depth); total += depth
        return total
    living = [greenlet(worker) for _ in range(20)]
    for n, one in enumerate(living): one.switch(n, 100)
    total = 0
    while living:
        for one in list(living):
            total += one.switch(1) or 0
            if one.dead: living.remove(one)
    print(total)
except ImportError: print('no greenlets')
results = []
threads = [threading.Thread(target=lambda n=n: results.append(sum(i * n for i in range(300000)) % 1000003)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]; print(sorted(results))
sys.exit(14)
