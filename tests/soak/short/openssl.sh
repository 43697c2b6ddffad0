# Digests, encryption and decryption, checks of keys, and speed.
head -c 3000000 /dev/zero | tr '\0' a > in
for digest in md5 sha1 sha256 sha512 sha3-256 blake2b512; do
	$RUN openssl dgst -$digest in
done
for cipher in aes-128-cbc aes-256-ctr chacha20 camellia-256-cbc; do
	$RUN openssl enc -$cipher -pbkdf2 -pass pass:x -S 0011223344556677 -in in -out out
	cksum < out
	$RUN openssl enc -d -$cipher -pbkdf2 -pass pass:x -S 0011223344556677 -in out | cksum
done
head -c 1000 in > message
$RUN openssl genpkey -algorithm ed25519 -out key
$RUN openssl pkeyutl -sign -rawin -in message -inkey key -out signature
$RUN openssl pkeyutl -verify -rawin -in message -inkey key -sigfile signature
$RUN openssl genrsa -out rsa 2048
$RUN openssl rsa -check -noout -in rsa
$RUN openssl prime 1000003
$RUN openssl speed -seconds 1 -bytes 1024 sha256 aes-128-cbc | grep -cE '^(sha256|aes-128-cbc)'
