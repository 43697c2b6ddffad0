<?php
// Fibers with stacks of their own, generators, exceptions, a collector of cycles.
$hold = getenv('HOLD');
while ($hold && !file_exists($hold)) clearstatcache();
function deep($n) { if ($n == 0) throw new Exception('told'); return 1 + deep($n - 1); }
$caught = 0;
for ($i = 0; $i < 20000; $i++) try { deep($i % 50); } catch (Exception $e) { $caught += strlen($e->getMessage()); }
echo $caught, "\n";
$fibers = [];
for ($n = 0; $n < 100; $n++) {
    $fibers[] = $fiber = new Fiber(function () use ($n) { for ($i = 0; $i < 100; $i++) Fiber::suspend($i * $n); throw new Exception("of $n"); });
    $fiber->start();
}
$total = 0;
for ($i = 0; $i < 99; $i++) foreach ($fibers as $fiber) $total += $fiber->resume();
echo $total, "\n";
$ends = 0;
foreach ($fibers as $fiber) try { $fiber->resume(); } catch (Exception $e) { $ends += strlen($e->getMessage()); }
echo $ends, "\n";
function numbers($n) { for ($i = 0; $i < $n; $i++) yield $i => $i * $i; }
$sum = 0;
foreach (numbers(100000) as $k => $v) $sum = ($sum + $v) % 1000003;
echo $sum, "\n";
for ($i = 0; $i < 100000; $i++) { $a = new stdClass; $b = new stdClass; $a->b = $b; $b->a = $a; }
echo gc_collect_cycles() >= 0 ? 'collected' : '', "\n";
$list = array_map(fn($i) => $i * 7919 % 10007, range(1, 20000));
usort($list, fn($a, $b) => $a <=> $b);
echo $list[0], ' ', $list[19999], ' ', md5(implode(',', $list)), "\n";
echo preg_replace_callback('/\d+/', fn($m) => strlen($m[0]), str_repeat('ab12', 5)), "\n";
