/* A library whose functions, those of the compiler, nobody knows once it is stripped. */
int data_only[4] = { 1, 2, 3, 4 };
