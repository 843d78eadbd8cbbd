mod keys;
