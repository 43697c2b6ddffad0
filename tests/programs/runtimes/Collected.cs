// Mono: code made at run time, stacks walked from the last call out of it, threads stopped by signals.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using System.Threading;

class Collected {
    class Tree { public Tree left, right; public int value; }
    delegate int Compare(IntPtr a, IntPtr b);
    [DllImport("libc")] static extern void qsort(int[] list, IntPtr count, IntPtr size, Compare compare);
    static Tree Grow(int n) { return n == 0 ? null : new Tree { left = Grow(n - 1), value = n, right = Grow(n - 1) }; }
    static long Sum(Tree t) { return t == null ? 0 : Sum(t.left) + t.value + Sum(t.right); }
    static int Deep(int n) { if (n == 0) throw new InvalidOperationException("told"); return 1 + Deep(n - 1); }
    static IEnumerable<int> Numbers(int n) { for (int i = 0; i < n; i++) yield return i * 7919 % 1009; }
    static int Main() {
        var hold = Environment.GetEnvironmentVariable("HOLD");
        while (hold != null && !File.Exists(hold)) { }
        for (int i = 0; i < 10; i++) { Console.WriteLine(Sum(Grow(14))); GC.Collect(); }
        int caught = 0;
        for (int i = 0; i < 2000; i++) try { Deep(i % 40); } catch (InvalidOperationException e) { caught += e.Message.Length; }
        string none = null;
        for (int i = 0; i < 200; i++) try { caught += none.Length; } catch (NullReferenceException) { caught++; }
        Console.WriteLine(caught);
        var totals = new long[4];
        var threads = Enumerable.Range(0, 4).Select(n => new Thread(() => { for (int i = 0; i < 10; i++) totals[n] += Sum(Grow(12)) + Numbers(2000).OrderBy(x => x).Last(); })).ToList();
        threads.ForEach(t => t.Start());
        threads.ForEach(t => t.Join());
        Console.WriteLine(totals.Sum());
        var list = Numbers(5000).ToArray();
        qsort(list, (IntPtr)list.Length, (IntPtr)4, (a, b) => Marshal.ReadInt32(a) - Marshal.ReadInt32(b));
        Console.WriteLine(list[0] + " " + list[4999]);
        return 9;
    }
}
