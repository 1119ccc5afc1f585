// Threads, exceptions through compiled and interpreted frames, garbage, lambdas, stack traces: the same output in every run.
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

public class Churn {
    interface Shape { double area(); }
    record Square(double side) implements Shape { public double area() { return side * side; } }
    record Circle(double radius) implements Shape { public double area() { return 3 * radius * radius; } }

    static int deep(int n) { if (n == 0) throw new IllegalStateException("bottom"); return 1 + deep(n - 1); }
    static int caught(int n) { try { return deep(n); } catch (IllegalStateException e) { return e.getStackTrace().length > n ? n : -1; } }

    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<Long>> all = new ArrayList<>();
        for (int w = 0; w < 24; w++) {
            final int seed = w;
            all.add(pool.submit(() -> {
                long sum = 0;
                for (int i = 0; i < 300; i++) {
                    List<Shape> shapes = new ArrayList<>();
                    for (int k = 0; k < 100; k++) shapes.add(k % 2 == 0 ? new Square(seed + k) : new Circle(k));
                    sum += (long) shapes.stream().mapToDouble(Shape::area).sum();
                    sum += caught(20 + i % 30);
                }
                return sum;
            }));
        }
        long total = 0;
        for (Future<Long> f : all) total += f.get();
        pool.shutdown();
        System.out.println("total " + total);
        System.gc();
        Map<String, Integer> words = new TreeMap<>();
        for (int i = 0; i < 50000; i++) words.merge("w" + i * 7919 % 101, 1, Integer::sum);
        System.out.println(words.size() + " " + words.entrySet().iterator().next());
        try { Object o = null; o.toString(); } catch (NullPointerException e) { System.out.println("npe"); }
        try { recurse(0); } catch (StackOverflowError e) { System.out.println("overflow"); }
        System.out.println(IntStream.range(0, 1000).parallel().map(i -> i * i % 7).sum());
        System.exit(6);
    }
    static int recurse(int n) { return recurse(n + 1) + 1; }
}
