// Strings, references, methods and large results of C++. Each f_* prints itself as `sptrace report tree` has it.
#include <cstdio>
#include <string>

#define F __attribute__((noinline, noipa))

enum class Level : short { low = -1, high = 7 };
struct Large { long a, b, c; };

static const char *text(bool b) { return b ? "true" : "false"; }

struct Shape {
    int width;
    F virtual int f_area(int height) const;
    F std::string f_label(const std::string &with);
    virtual ~Shape() = default;
};
F int Shape::f_area(int height) const
{
    std::printf("Shape::f_area(%d) = %d\n", height, width * height);
    return width * height;
}
F std::string Shape::f_label(const std::string &with)
{
    std::printf("Shape::f_label(\"%s\") = \"<%s>\"\n", with.c_str(), with.c_str());
    return "<" + with + ">";
}
F static std::size_t f_value(std::string s) { std::printf("f_value(\"%s\") = %zu\n", s.c_str(), s.size()); return s.size(); }
F static bool f_level(Level l, bool b) { std::printf("f_level(high, %s) = %s\n", text(b), text(!b)); return l == Level::high && !b; }
F static Large f_large(long n) { std::printf("f_large(%ld)\n", n); return { n, n + 1, n + 2 }; }
F static void f_reference(int &n) { n++; std::printf("f_reference([%d => %d])\n", n - 1, n); }

int main()
{
    Shape shape;
    shape.width = 3;
    Shape *volatile pointer = &shape;
    int n = 1;
    pointer->f_area(4);
    std::string label = shape.f_label("a label of more than fifteen");
    f_value(std::string("short"));
    f_level(Level::high, false);
    Large large = f_large(5);
    f_reference(n);
    return large.a == 5 ? 0 : 1;
}
