# Measures each algorithm.
for algorithm in md5 sha1 sha256 sha512 aes-128-cbc aes-256-cbc camellia-256-cbc rsa2048 dsa2048 ecdsap256 ecdhx25519 ed25519; do
	$RUN openssl speed -seconds 1 $algorithm > speed 2> said
	echo "$algorithm $? $(grep -icE "${algorithm%%[0-9]*}" speed)"
done
