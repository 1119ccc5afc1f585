// Virtual calls: single and multiple inheritance (with this-adjusting thunks), std::function, a member pointer.
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

struct Shape { virtual ~Shape() { std::printf("gone\n"); } virtual int f_area() const = 0; virtual const char *f_name() const { return "shape"; } };
struct Named { virtual ~Named() = default; virtual int f_tag() const { return 0; } };
struct Square : Shape { int side; explicit Square(int s) : side(s) {} int f_area() const override { std::printf("Square::f_area\n"); return side * side; } };
struct Rect : Shape, Named {
    int w, h;
    Rect(int a, int b) : w(a), h(b) {}
    int f_area() const override { std::printf("Rect::f_area\n"); return w * h; }
    const char *f_name() const override { return "rect"; }
    int f_tag() const override { std::printf("Rect::f_tag\n"); return w - h; }
};

__attribute__((noipa)) static int f_tags(const Named &n) { return n.f_tag(); }

int main()
{
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 1; i < 5; i++) {
        if (i & 1) shapes.push_back(std::make_unique<Square>(i));
        else shapes.push_back(std::make_unique<Rect>(i, i + 1));
    }
    int total = 0;
    for (auto &s : shapes) { std::printf("%s\n", s->f_name()); total += s->f_area(); }
    Rect r(9, 4);
    total += f_tags(r);
    int (Shape::*member)() const = &Shape::f_area;
    Shape *volatile p = &r;
    total += (p->*member)();
    std::function<int(int)> closure = [&](int x) { return x + total; };
    total += closure(5);
    std::printf("total %d\n", total);
    return total & 0x7f;
}
