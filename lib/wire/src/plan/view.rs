//! Reading a plan's bytes, on either side.
//!
//! Given bytes; gives the parts of a plan by their numbers. Bytes come from a cache or from the
//! other side: every access is checked, and what lies outside is not there. No copy is made of what
//! is not asked for.

use super::*;

/// A plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanView<'a> {
    bytes: &'a [u8],
    header: PlanHeader,
}

impl<'a> PlanView<'a> {
    /// `None`: not a plan of this version, or one whose sections lie outside it.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let header = PlanHeader::read(bytes)?;
        let h = &header;
        let sections = [
            (h.functions_offset, h.functions, PlanFunction::BYTES),
            (h.sites_offset, h.sites, PlanSite::BYTES),
            (h.links_offset, h.links, size_of::<u32>()),
            (h.specials_offset, h.specials, PlanSpecial::BYTES),
            (h.blob_offset, h.blob_bytes, 1),
            (h.values_offset, h.values_bytes, 1),
        ];
        let total_bytes = h.total_bytes as usize;
        let is_whole = total_bytes <= bytes.len()
            && sections.iter().all(|(offset, count, size)| {
                *offset as usize + *count as usize * size <= total_bytes
            });
        let is_ours = h.magic == PLAN_MAGIC && h.version == PLAN_VERSION;
        (is_whole && is_ours).then_some(Self { bytes, header })
    }

    /// The header.
    pub fn header(&self) -> &PlanHeader {
        &self.header
    }

    fn at(&self, offset: u32, index: u32, size: usize) -> Option<&'a [u8]> {
        let at = (offset as usize).checked_add((index as usize).checked_mul(size)?)?;
        self.bytes.get(at..)
    }

    /// Function number `i`.
    pub fn function(&self, i: u32) -> Option<PlanFunction> {
        if i >= self.header.functions {
            return None;
        }
        PlanFunction::read(self.at(self.header.functions_offset, i, PlanFunction::BYTES)?)
    }

    /// All functions, by entry.
    pub fn functions(self) -> impl Iterator<Item = PlanFunction> + 'a {
        (0..self.header.functions).map_while(move |i| self.function(i))
    }

    /// Number of functions that begin at smaller offsets.
    pub fn functions_before(&self, offset: u32) -> u32 {
        let (mut low, mut high) = (0, self.header.functions);
        while low < high {
            let middle = (low + high) / 2;
            if self.function(middle).is_some_and(|f| f.entry < offset) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Number of the function that begins at this offset.
    pub fn function_at(&self, offset: u32) -> Option<u32> {
        let at = self.functions_before(offset);
        self.function(at)
            .is_some_and(|f| f.entry == offset)
            .then_some(at)
    }

    /// Site number `i`.
    pub fn site(&self, i: u32) -> Option<PlanSite> {
        if i >= self.header.sites {
            return None;
        }
        PlanSite::read(self.at(self.header.sites_offset, i, PlanSite::BYTES)?)
    }

    /// How site number `i` is patched while its calls are counted. `None`: it cannot be.
    pub fn twin(&self, i: u32) -> Option<PlanSite> {
        let is_one = i < self.header.twins;
        let twin = is_one.then(|| self.site(i.checked_add(self.header.twins)?))??;
        (twin.form != SiteForm::Refused).then_some(twin)
    }

    /// The sites of a function, each with its twin, if it has one.
    pub fn sites_with_twins(
        self,
        f: &PlanFunction,
    ) -> impl Iterator<Item = (PlanSite, Option<PlanSite>)> + use<'a> {
        f.sites()
            .map_while(move |i| Some((self.site(i)?, self.twin(i))))
    }

    /// The sites of a function with their twins, if they have such.
    pub fn twins_of(
        self,
        f: &PlanFunction,
    ) -> impl Iterator<Item = (PlanSite, PlanSite)> + use<'a> {
        f.sites()
            .filter_map(move |i| Some((self.site(i)?, self.twin(i)?)))
    }

    /// All sites, and their twins.
    pub fn sites(self) -> impl Iterator<Item = PlanSite> + 'a {
        (0..self.header.sites).map_while(move |i| self.site(i))
    }

    /// The sites of a function.
    pub fn sites_of(self, f: &PlanFunction) -> impl Iterator<Item = PlanSite> + use<'a> {
        f.sites().map_while(move |i| self.site(i))
    }

    /// Numbers of the functions that are instrumented together with this one.
    pub fn links_of(self, f: &PlanFunction) -> impl Iterator<Item = u32> + use<'a> {
        let end = f.first_link.saturating_add(u32::from(f.link_count));
        let link = move |i| {
            let bytes = self.at(self.header.links_offset, i, size_of::<u32>())?;
            Some(u32::from_le_bytes(*bytes.first_chunk()?))
        };
        (f.first_link..end.min(self.header.links))
            .map_while(link)
            .filter(move |to| *to < self.header.functions)
    }

    /// Special function number `i`.
    pub fn special(&self, i: u32) -> Option<PlanSpecial> {
        if i >= self.header.specials {
            return None;
        }
        PlanSpecial::read(self.at(self.header.specials_offset, i, PlanSpecial::BYTES)?)
    }

    /// All special functions.
    pub fn specials(self) -> impl Iterator<Item = PlanSpecial> + 'a {
        (0..self.header.specials).map_while(move |i| self.special(i))
    }

    /// The template at this offset.
    pub fn template(&self, argument: u32) -> Option<TemplateView<'a>> {
        let blob = self.at(self.header.blob_offset, 0, 0)?;
        let blob = blob.get(..self.header.blob_bytes as usize)?;
        TemplateView::read(blob.get(argument as usize..)?)
    }

    /// What is said of values, from its first byte on.
    pub fn values(&self) -> &'a [u8] {
        let bytes = self.at(self.header.values_offset, 0, 0).unwrap_or(&[]);
        bytes
            .get(..self.header.values_bytes as usize)
            .unwrap_or(&[])
    }

    /// Where the text jumps to, as an offset in the patch area.
    pub fn slot_entry(&self, site: &PlanSite) -> Option<u32> {
        match site.form {
            SiteForm::Direct => Some(site.slot + DIRECT_ENTRY),
            SiteForm::Refused => None,
            _ if site.is_return() || site.returns_first() => Some(site.slot + RETURN_ENTRY),
            _ => Some(site.slot),
        }
    }

    /// What is said of a return point without a template.
    pub fn return_point(&self, site: &PlanSite) -> Option<ReturnView<'a>> {
        if !matches!(site.form, SiteForm::Return) {
            return None;
        }
        let blob = self.at(self.header.blob_offset, 0, 0)?;
        let blob = blob.get(..self.header.blob_bytes as usize)?;
        let (distance, rest) = blob.get(site.argument as usize..)?.split_first_chunk()?;
        let (covered, rest) = rest.split_at_checked(usize::from(site.span))?;
        Some(ReturnView {
            distance: i32::from_le_bytes(*distance),
            covered,
            rel32s: rest.get(..usize::from(site.verdict >> RETURN_REL32S))?,
        })
    }

    /// The site's template, if it has one.
    pub fn template_of(&self, site: &PlanSite) -> Option<TemplateView<'a>> {
        match site.form {
            SiteForm::Template => self.template(site.argument),
            _ => None,
        }
    }

    /// Offsets in the slot of the entry and exit ids (0: none).
    pub fn ids(&self, site: &PlanSite) -> Option<(u16, u16)> {
        match site.form {
            SiteForm::Direct => Some((DIRECT_ENTRY_ID, DIRECT_EXIT_ID)),
            SiteForm::Counted => Some((COUNTED_ID, 0)),
            SiteForm::Ordered => Some((ORDERED_ID, 0)),
            SiteForm::Acts => Some((ACTS_ID, 0)),
            SiteForm::Kept => Some((KEPT_ID, 0)),
            SiteForm::Return => Some((0, RETURN_ID)),
            SiteForm::Template => {
                let t = self.template(site.argument)?.head;
                Some((t.entry_id, t.exit_id))
            }
            SiteForm::Refused => None,
        }
    }

    /// Svma of the callee of a site that names it.
    pub fn callee(&self, site: &PlanSite) -> Option<u64> {
        let base = self.header.base_svma;
        match site.form {
            SiteForm::Direct
            | SiteForm::Counted
            | SiteForm::Ordered
            | SiteForm::Acts
            | SiteForm::Kept => Some(base.wrapping_add(u64::from(site.argument))),
            SiteForm::Template if !site.is_any(SITE_INDIRECT) => {
                // Of the call or jump that follows the entry id.
                let t = self.template(site.argument)?;
                let offset = t.text_target(t.head.entry_id.checked_add(1)?)?;
                Some(base.wrapping_add_signed(offset))
            }
            _ => None,
        }
    }

    /// Svma of the GOT slot whose content an indirect call or jump pushes.
    pub fn got_slot(&self, site: &PlanSite) -> Option<u64> {
        if !site.is_any(SITE_INDIRECT) {
            return None;
        }
        let t = self.template_of(site)?;
        let before = match site.keeps_acts() {
            // It is pushed before the question.
            true => kept_acts::ASK.unsigned_abs() as u16 + 4,
            // The entry id follows `push [rip+x]; call`.
            false => 9,
        };
        let offset = t.text_target(t.head.entry_id.checked_sub(before)?)?;
        Some(self.header.base_svma.wrapping_add_signed(offset))
    }

    /// Text outside the site that its patch covers, as offsets: the long jump of a two-byte one,
    /// and what was moved to make room for it.
    pub fn springboard(&self, site: &PlanSite) -> Option<(u32, u32)> {
        if !site.is_any(SITE_SPRINGBOARD) {
            return None;
        }
        let t = self.template_of(site)?;
        let from = site.start.checked_add(2)?;
        let spring = from.checked_add_signed(i32::from(t.head.springboard))?;
        let back = t.room.map_or(0, |room| u32::from(room.0.back));
        let end = spring.checked_add(JUMP_BYTES as u32)?;
        Some((spring.checked_sub(back)?, end))
    }
}

/// What is said of a return point without a template.
#[derive(Clone, Copy, Debug)]
pub struct ReturnView<'a> {
    /// From its id to the entry id of the call.
    pub distance: i32,
    /// What its jump covers.
    pub covered: &'a [u8],
    /// Where in that the rel32s lie that count from where they are to a place in the module.
    pub rel32s: &'a [u8],
}

impl ReturnView<'_> {
    /// Makes `code`, which begins with what is covered, be as it is where it lies so many bytes
    /// farther on. False: it is too short.
    pub fn move_by(&self, distance: u64, code: &mut [u8]) -> bool {
        let mut places = self.rel32s.iter().map(|at| usize::from(*at));
        places.all(|at| {
            let rel32 = code.get_mut(at..).and_then(|code| code.first_chunk_mut());
            rel32.is_some_and(|rel32| {
                let moved = u32::from_le_bytes(*rel32).wrapping_sub(distance as u32);
                *rel32 = moved.to_le_bytes();
                true
            })
        })
    }
}

/// A template with what follows it.
#[derive(Clone, Copy, Debug)]
pub struct TemplateView<'a> {
    /// Its start.
    pub head: Template,
    /// What must be found at the site.
    pub original: &'a [u8],
    /// The instructions that made room, and where they stood.
    pub room: Option<(Room, &'a [u8])>,
    /// The slot, before its fixups are filled in.
    pub code: &'a [u8],
    fixups: &'a [u8],
}

impl<'a> TemplateView<'a> {
    /// The template that these bytes begin with. `None`: they end before it does.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let head = Template::read(bytes)?;
        let rest = bytes.get(Template::BYTES..)?;
        let (original, rest) = rest.split_at_checked(usize::from(head.original_bytes))?;
        let (room, rest) = match head.room_to {
            0 => (None, rest),
            _ => {
                let room = Room::read(rest)?;
                let moved = rest.get(Room::BYTES..)?;
                let (moved, rest) = moved.split_at_checked(usize::from(room.bytes))?;
                (Some((room, moved)), rest)
            }
        };
        let (code, rest) = rest.split_at_checked(usize::from(head.code_bytes))?;
        let fixups = rest.get(..usize::from(head.fixups) * Fixup::BYTES)?;
        Some(Self {
            head,
            original,
            room,
            code,
            fixups,
        })
    }

    /// What depends on where things lie.
    pub fn fixups(self) -> impl Iterator<Item = Fixup> + 'a {
        self.fixups
            .chunks_exact(Fixup::BYTES)
            .map_while(Fixup::read)
    }

    /// Offset in the module of what the rel32 at `position` of the slot leads to.
    pub fn text_target(&self, position: u16) -> Option<i64> {
        let found = self.fixups().find(|f| f.position == position);
        found
            .filter(|f| f.kind == FixupKind::Text)
            .map(|f| i64::from(f.value))
    }
}
