/* view_image: what a file is by its first bytes, whatever it is called. */
#include "tools.h"
#include "../base/util.h"

static bool begins(const void *p, size_t n, const char *with, size_t k)
{
	return n >= k && !memcmp(p, with, k);
}

const char *ntr_image_kind(const void *p, size_t n)
{
	if (begins(p, n, "\x89PNG\r\n\x1a\n", 8))
		return "png";
	if (begins(p, n, "\xff\xd8\xff", 3))
		return "jpeg";
	if (begins(p, n, "GIF87a", 6) || begins(p, n, "GIF89a", 6))
		return "gif";
	if (n >= 12 && begins(p, n, "RIFF", 4) && !memcmp((const char *)p + 8, "WEBP", 4))
		return "webp";
	return NULL;
}

const char *ntr_image_other(const void *p, size_t n)
{
	static const struct {
		const char *bytes;
		size_t n;
		const char *name;
	} kinds[] = {{"%PDF", 4, "a PDF"}, {"BM", 2, "a BMP image"}, {"II*\0", 4, "a TIFF image"},
	        {"MM\0*", 4, "a TIFF image"}, {"<svg", 4, "an SVG image"},
	        {"<?xml", 5, "XML, perhaps an SVG image"}, {"<!DOCTYPE", 9, "HTML"}, {"<html", 5, "HTML"},
	        {"\x1f\x8b", 2, "gzip data"}, {"PK\3\4", 4, "a zip archive"}, {"\0\0\1\0", 4, "an icon"},
	        {"\x7f"
	         "ELF",
	                4, "a program"}};

	if (!n)
		return "empty";
	for (size_t i = 0; i < NTR_COUNT(kinds); i++)
		if (begins(p, n, kinds[i].bytes, kinds[i].n))
			return kinds[i].name;
	if (n >= 12 && !memcmp((const char *)p + 4, "ftyp", 4))
		return "HEIF, AVIF or a video";
	return memchr(p, '\0', n < 512 ? n : 512) ? "other data" : "text";
}
