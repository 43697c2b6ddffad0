# MoarVM: code made at run time, promises over threads, exceptions that resume, gather by continuations.
my $hold = %*ENV<HOLD>; while $hold && !$hold.IO.e { }
sub deep(Int $n) { $n == 0 ?? die('told') !! 1 + deep($n - 1) }
my $caught = 0;
for ^2000 -> $n { try deep($n % 30); $caught += $!.message.chars }
say $caught;
say (gather for ^2000 { take $_ }).sum;
say await(^4 .map: -> $n { start { (^5000).map({ $_ * 7919 % 1009 }).sort.tail + $n } }).sum;
my %counts; %counts{$_ % 97}++ for ^5000; say %counts.elems;
exit 15;
