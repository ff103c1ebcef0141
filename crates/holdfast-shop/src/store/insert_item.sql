insert into items (sku, name, price_cents, stock, opening, kind, limit_per_user,
                   description, name_zh)
values ($1::text, $2::text, $3::bigint, $4::bigint, $4, $5::text, $6::bigint, $7::text,
        $8::text)
-- parameters: sku, name, price_cents, stock, kind, limit_per_user, description, name_zh
