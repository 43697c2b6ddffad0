// Pike: an interpreter with a frame stack of its own, threads, errors by longjmp, a collector of cycles.
int deep(int n) { if (!n) error("told"); return 1 + deep(n - 1); }
int work(int n) { array a = sort(map(enumerate(20000), lambda(int i) { return i * 7919 * n % 1009; })); return `+(@a); }
int main() {
  string hold = getenv("HOLD");
  while (hold && !Stdio.exist(hold));
  int caught;
  for (int i = 0; i < 5000; i++) if (catch { deep(i % 50); }) caught++;
  write("%d\n", caught);
  array threads = map(({ 1, 2, 3, 4 }), lambda(int n) { return Thread.Thread(work, n); });
  write("%O\n", threads->wait());
  for (int i = 0; i < 20; i++) { array live = ({}); for (int j = 0; j < 5000; j++) { array one = ({ 0 }); one[0] = one; live += ({ one }); if (sizeof(live) > 100) live = ({}); } gc(); }
  write("%s\n", String.string2hex(Crypto.SHA1.hash("nopal" * 10000)));
  write("%d\n", sizeof(mkmapping(enumerate(10000), enumerate(10000))));
  return 7;
}
