-- Coroutines and errors by longjmp, callbacks from C, a collector.
local hold = os.getenv('HOLD'); while hold and not io.open(hold) do end
local total = 0
for n = 1, 300 do
  local co = coroutine.wrap(function() for i = 1, 100 do coroutine.yield(i * n) end return 0 end)
  for _ = 1, 100 do total = (total + co()) % 1000003 end
end
print(total)
local caught = 0
local function deep(n) if n == 0 then error({ n = 1 }) end return 1 + deep(n - 1) end
for n = 1, 5000 do local ok, e = pcall(deep, n % 50); caught = caught + e.n end
print(caught)
local t = {}
for i = 1, 50000 do t[i] = (i * 7919) % 100003 end
table.sort(t, function(a, b) return a < b end)
print(t[1], t[#t])
print((string.gsub(string.rep('ab12', 3000), '%d+', function(d) return d + 1 end)):len())
for _ = 1, 10 do local live = {}; for i = 1, 20000 do live[i] = { i } end; collectgarbage() end
print(select('#', table.unpack(t, 1, 200)))
local inner = coroutine.wrap(function() print(pcall(function() coroutine.yield('through'); error('end') end)) end)
print(inner()); inner()
