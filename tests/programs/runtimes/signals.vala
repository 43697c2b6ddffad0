// Vala: GObject's signals and closures, threads, errors, callbacks from C.
class Counter : Object {
	public signal void told(int n);
	public int total;
	construct { told.connect((n) => { total = (total + n) % 1000003; }); }
}
errordomain Trouble { DEEP }
int deep(int n) throws Trouble {
	if (n == 0) throw new Trouble.DEEP("told");
	return 1 + deep(n - 1);
}
async int later(int n) {
	Idle.add(later.callback);
	yield;
	return n * 2;
}
int main() {
	var hold = Environment.get_variable("HOLD");
	while (hold != null && !FileUtils.test(hold, FileTest.EXISTS));
	var counter = new Counter();
	for (int i = 0; i < 100000; i++) counter.told(i);
	print("%d\n", counter.total);
	int caught = 0;
	for (int i = 0; i < 20000; i++) try { deep(i % 50); } catch (Trouble e) { caught += e.message.length; }
	print("%d\n", caught);
	Thread<int>[] threads = {};
	for (int t = 1; t <= 4; t++) { int n = t; threads += new Thread<int>("work", () => { var list = new List<int>(); for (int i = 0; i < 5000; i++) list.prepend(i * 7919 * n % 1009); list.sort((a, b) => a - b); return list.nth_data(4999); }); }
	foreach (var thread in threads) print("%d\n", thread.join());
	var loop = new MainLoop();
	int sum = 0, left = 500;
	for (int i = 0; i < 500; i++) later.begin(i, (o, r) => { sum += later.end(r); if (--left == 0) loop.quit(); });
	loop.run();
	print("%d\n", sum);
	return 3;
}
