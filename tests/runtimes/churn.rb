# Garbage, exceptions, fibers, threads, a child: the same output in every run.
def deep(n) = n.zero? ? raise(ArgumentError, "bottom") : 1 + deep(n - 1)
sum = 0
200.times { |i| begin; deep(i % 60); rescue ArgumentError => e; sum += e.backtrace.size; end }
puts "frames #{sum}"
fibers = 5.times.map { |i| Fiber.new { 10.times { |k| Fiber.yield i * k }; -1 } }
puts fibers.map { |f| 11.times.sum { f.resume } }.inspect
puts 8.times.map { |i| Thread.new { (1..2000).reduce { |a, b| (a * b + i) % 1_000_003 } } }.map(&:value).inspect
words = Hash.new(0); 50_000.times { |i| words["w#{i * 7919 % 101}"] += 1 }; GC.start; GC.compact rescue nil
puts words.size, words.keys.min, catch(:done) { 10.times { |i| throw :done, i if i == 7 } }
puts `echo child`, "x".encode("UTF-16LE").bytes.inspect
exit 9
