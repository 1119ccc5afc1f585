"""C extensions and callbacks from C into Python: the same output in every run."""
import bz2, ctypes, decimal, hashlib, lzma, sqlite3, struct, sys, threading, unicodedata, zlib

libc = ctypes.CDLL(None)
COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))


def by_sort(n):
    values = (ctypes.c_int * n)(*[(i * 7919) % 1009 for i in range(n)])
    libc.qsort(values, n, ctypes.sizeof(ctypes.c_int), COMPARE(lambda a, b: a[0] - b[0]))
    return list(values[:5])


def by_database(n):
    db = sqlite3.connect(":memory:")
    db.create_function("twice", 1, lambda x: 2 * x)
    def refuse(x): raise ValueError(x)
    db.create_function("refuse", 1, refuse)
    db.execute("create table t(x)")
    db.executemany("insert into t values (?)", ((i,) for i in range(n)))
    try: db.execute("select refuse(x) from t").fetchall()
    except sqlite3.OperationalError as error: print("refused:", error)
    return db.execute("select sum(twice(x)) from t").fetchone()


data = b"".join(struct.pack("<I", i * 2654435761 % 2**32) for i in range(20000))
print(by_sort(1000), by_database(2000))
for codec in (zlib, bz2, lzma): print(codec.__name__, codec.decompress(codec.compress(data)) == data)
print(hashlib.sha3_256(data).hexdigest()[:16], decimal.Decimal(2).sqrt(), unicodedata.name("\u00e9"))
results = [None] * 6
def work(i): results[i] = (by_sort(300), hashlib.md5(data[i:]).hexdigest()[:8])
threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
for t in threads: t.start()
for t in threads: t.join()
print(results)
sys.exit(8)
