/* Methods that are compiled while they run, and exceptions. */
import java.io.File;

public class Calls {
    static long fib(long n) {
        return n < 2 ? n : fib(n - 1) + fib(n - 2);
    }

    static int fail(int depth) {
        if (depth == 0)
            throw new IllegalStateException("deep");
        return fail(depth - 1) + 1;
    }

    public static void main(String[] arguments) {
        String hold = System.getenv("HOLD");
        while (hold != null && !new File(hold).exists()) {
        }
        int caught = 0;
        for (int i = 0; i < 1000; i++) {
            try {
                fail(i % 20);
            } catch (IllegalStateException error) {
                caught++;
            }
        }
        String none = null;
        try {
            none.length();
        } catch (NullPointerException error) {
            caught++;
        }
        System.out.println(fib(30) + " " + caught);
    }
}
