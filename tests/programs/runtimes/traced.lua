-- LuaJIT: traces compiled at run time, errors by the unwinder through its own frames, coroutines, callbacks from C.
local hold = os.getenv('HOLD'); while hold and not io.open(hold) do end
local ffi = require('ffi')
ffi.cdef('void qsort(void *, size_t, size_t, int (*)(const void *, const void *));')
local total = 0
for n = 1, 300 do
  local co = coroutine.wrap(function() for i = 1, 100 do coroutine.yield(i * n) end return 0 end)
  for _ = 1, 100 do total = (total + co()) % 1000003 end
end
print(total)
local caught = 0
local function deep(n) if n == 0 then error({ n = 1 }) end return 1 + deep(n - 1) end
for n = 1, 20000 do local ok, e = pcall(deep, n % 50); caught = caught + e.n end
print(caught)
local a = ffi.new('int[?]', 5000)
for i = 0, 4999 do a[i] = (i * 7919) % 10007 end
local compare = ffi.cast('int (*)(const void *, const void *)', function(x, y)
  return ffi.cast('const int *', x)[0] - ffi.cast('const int *', y)[0]
end)
ffi.C.qsort(a, 5000, 4, compare)
print(a[0], a[4999])
local sum = 0
for i = 1, 10000000 do sum = (sum + i * 3) % 1000003 end
print(sum)
for _ = 1, 20 do local live = {}; for i = 1, 20000 do live[i] = { i } end; collectgarbage() end
print((string.gsub(string.rep('ab12', 3000), '%d+', function(d) return d + 1 end)):len())
print(pcall(string.rep, 'x', -1), pcall(string.rep))
local inner = coroutine.wrap(function() print(pcall(function() coroutine.yield('through'); error('end') end)) end)
print(inner()); inner()
