// HotSpot: stacks walked from the last call out of compiled code, threads stopped by faults on a page, collectors of its own.
import java.io.File;
import java.util.*;
import java.util.stream.*;

public class Collected {
    record Tree(Tree left, int value, Tree right) {}

    static Tree grow(int n) {
        return n == 0 ? null : new Tree(grow(n - 1), n, grow(n - 1));
    }

    static long sum(Tree tree) {
        return tree == null ? 0 : sum(tree.left) + tree.value + sum(tree.right);
    }

    static int deep(int n) {
        if (n == 0) throw new IllegalStateException("told");
        return deep(n - 1) + 1;
    }

    static int endless(int n) {
        return endless(n + 1) + 1;
    }

    public static void main(String[] arguments) throws Exception {
        String hold = System.getenv("HOLD");
        while (hold != null && !new File(hold).exists()) {}
        for (int i = 0; i < 10; i++) {
            System.out.println(sum(grow(14)));
            System.gc();
        }
        int caught = 0;
        for (int i = 0; i < 5000; i++) {
            try {
                deep(i % 40);
            } catch (IllegalStateException error) {
                caught += error.getMessage().length() + Math.min(error.getStackTrace().length, 1);
            }
        }
        String none = null;
        for (int i = 0; i < 500; i++) {
            try {
                caught += none.length();
            } catch (NullPointerException error) {
                caught++;
            }
        }
        try {
            endless(0);
        } catch (StackOverflowError error) {
            caught++;
        }
        System.out.println(caught);
        long[] totals = new long[4];
        Thread[] threads = new Thread[4];
        for (int t = 0; t < 4; t++) {
            int n = t;
            threads[t] = new Thread(() -> {
                for (int i = 0; i < 20; i++) totals[n] += sum(grow(12));
            });
            threads[t].start();
        }
        for (Thread thread : threads) thread.join();
        System.out.println(Arrays.toString(totals));
        System.out.println(IntStream.range(0, 20000).map(i -> i * 7919 % 10007).sorted().skip(19999).sum());
        Map<String, Integer> counts = new TreeMap<>();
        for (int i = 0; i < 50000; i++) counts.merge("" + i % 997, 1, Integer::sum);
        System.out.println(counts.size());
        System.exit(17);
    }
}
