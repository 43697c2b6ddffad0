# Continuations copy the machine's stack away and back; fibers have stacks of their own; the collector scans all of them.
hold = ENV['HOLD']
until hold.nil? || File.exist?(hold); end

require 'continuation'

def generated(list)
  back = nil
  step = lambda do
    callcc do |here|
      back = here
      list.each { |x| callcc { |again| step_over = again; back.call([x, step_over]) } }
      back.call(nil)
    end
  end
  total = 0
  result = step.call
  while result
    value, again = result
    total += value
    result = callcc { |here| back = here; again.call }
  end
  total
end

def deep(n, &block) = n.zero? ? block.call : deep(n - 1, &block) + 1

puts generated((1..500).to_a)

again = nil
count = 0
puts deep(50) { callcc { |here| again = here }; count += 1 }
again.call(nil) if count < 200
puts count

fibers = (1..50).map { |n| Fiber.new { 200.times { |i| Fiber.yield [n, i].join('-').hash & 1 }; n } }
total = 0
200.times { fibers.each { |fiber| fiber.resume; total += 1 } }
puts total, fibers.sum(&:resume)

counted = Enumerator.new { |y| n = 0; loop { y << (n += 1) } }
puts (1..300).sum { counted.next }

caught = 0
300.times { |n| begin; deep(n) { raise ArgumentError, n.to_s * 50 }; rescue ArgumentError => e; caught += e.message.size; end }
puts caught

threads = 4.times.map { |n| Thread.new { (1..3000).map { |i| [i, n].to_s }.sort.last } }
puts threads.map(&:value)
GC.start
puts [3, 1, 2].sort_by { |n| callcc { |k| k.call(n) } }.inspect
GC.compact rescue nil
puts catch(:done) { deep(30) { throw :done, 'thrown' } }
