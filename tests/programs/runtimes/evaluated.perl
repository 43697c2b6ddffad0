# Perl: die by longjmp, sort's callbacks, signals, its own threads, weak references, regular expressions.
use strict; use warnings;
my $hold = $ENV{HOLD}; while ($hold && !-e $hold) {}
sub deep { my $n = shift; die "told\n" unless $n; 1 + deep($n - 1) }
my $caught = 0;
for my $n (0 .. 9999) { eval { deep($n % 50) }; $caught += length $@ }
print "$caught\n";
print join(' ', (sort { $a <=> $b } map { $_ * 7919 % 10007 } 1 .. 20000)[0, 19999]), "\n";
(my $text = 'ab12' x 3000) =~ s/(\d+)/$1 + 1/ge; print length($text), "\n";
my $alarms = 0; local $SIG{ALRM} = sub { $alarms++; die "alarm\n" };
for (1 .. 5) { eval { alarm 0; kill ALRM => $$; select undef, undef, undef, 0.01; }; }
print "$alarms\n";
use threads; print join(' ', map { $_->join } map { my $n = $_; threads->create(sub { my $t = 0; $t = ($t + $_ * $n) % 1000003 for 1 .. 50000; $t }) } 1 .. 4), "\n";
my $pid = fork; if (!$pid) { exit 3 } waitpid $pid, 0; print $? >> 8, "\n";
for (1 .. 20000) { my ($one, $two) = ({}, {}); $one->{o} = $two; }
exit 11;
