# Crystal: fibers with stacks of their own under Boehm's collector, exceptions by the unwinder, backtraces from it.
hold = ENV["HOLD"]?
while hold && !File.exists?(hold); end

class Tree
  getter left : Tree?, right : Tree?, value : Int32
  def initialize(@value : Int32)
    @left = value > 0 ? Tree.new(value - 1) : nil
    @right = value > 0 ? Tree.new(value - 1) : nil
  end
  def sum : Int64
    (@left.try(&.sum) || 0_i64) + @value + (@right.try(&.sum) || 0_i64)
  end
end

def deep(n : Int32) : Int32
  raise "told" if n == 0
  deep(n - 1) + 1
end

10.times { puts Tree.new(13).sum; GC.collect }
caught = 0
500.times { |n| begin; deep(n % 40); rescue error; caught += error.message.not_nil!.size + (error.backtrace.size > 0 ? 1 : 0); end }
puts caught
channel = Channel(Int64).new
100.times { |n| spawn { sum = 0_i64; 100.times { |i| sum += i * n; Fiber.yield }; channel.send sum } }
puts (0...100).sum { channel.receive }
counts = Hash(String, Int32).new(0)
50_000.times { |i| counts[(i % 997).to_s] += 1 }
puts counts.size, counts.values.sum
puts "ab12" * 3 =~ /\d+/
exit 6
